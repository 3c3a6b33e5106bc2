"""Gangs: pods of a group that are placed together or not at all."""
