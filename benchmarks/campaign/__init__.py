"""A campaign against the library: kills, faulty clients, fuzzed messages and files, with counts of what held."""
