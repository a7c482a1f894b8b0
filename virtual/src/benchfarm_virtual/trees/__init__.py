"""The phone's computed file trees."""
