"""The commands and their options, a module for each subject. What a command does is imported when it runs."""
