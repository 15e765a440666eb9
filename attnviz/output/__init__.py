"""From figures and arrays to complete files on disk."""
