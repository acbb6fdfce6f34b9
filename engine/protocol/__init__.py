"""What console and engine say to each other: messages, how they are read; standard library only."""
