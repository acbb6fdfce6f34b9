"""The use cases, each once for the command line and the console; they yield typed events."""
