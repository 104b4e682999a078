import six


def greeting(name):
    return six.text_type("Hello, {}").format(name)
