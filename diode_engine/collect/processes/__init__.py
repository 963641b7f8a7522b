"""Worker processes of this machine: started, watched, asked and replaced."""
