"""Two objectives over hospitals whose records stay where they are."""
