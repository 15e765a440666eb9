"""What happens to a picture between its file and its figure; the engines join these stages."""
