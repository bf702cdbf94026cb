def write(a, b):
    return []
