"""What happened to an engine, in one file for whoever has to mend it: without keys or prompts."""
