"""Data sets in their official formats, compositions of them, and ways to deal them out to clients."""
