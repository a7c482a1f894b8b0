"""Phones over adb and this computer, behind the Device port.

The only package that knows adbutils and filelock.
"""
