"""The process: settings, listeners, the connection to the API server, election, and the life of all of it."""
