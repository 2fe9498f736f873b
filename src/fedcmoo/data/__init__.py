"""Data sets in their official formats, compositions of them, and ways to partition them over clients."""
