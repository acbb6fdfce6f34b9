"""What a lying engine, a broken file or a wild command line can do to a command: nothing."""
