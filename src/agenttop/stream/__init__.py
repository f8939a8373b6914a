"""Where frames come from: a child process, a recording, or a session in progress."""
