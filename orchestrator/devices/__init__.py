"""Phones over adb and this computer, behind the Device port; the only package that knows adbutils."""
