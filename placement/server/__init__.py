"""The processes of the service: settings, commands, health, demonstration."""
