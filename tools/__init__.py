"""Builds everything a reader sees from the masters in chapters/ and solutions/."""
