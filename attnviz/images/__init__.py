"""From paths to prepared pictures: find, read, fit."""
