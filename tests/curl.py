"""As much of curl as the printed calls use, for machines that have only Python."""

import argparse
import sys
import urllib.error
import urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("-s", action="store_true")
parser.add_argument("-H", action="append", default=[])
parser.add_argument("-d")
parser.add_argument("url")
given = parser.parse_args()

request = urllib.request.Request(given.url, data=given.d.encode() if given.d else None)
for header in given.H:
    request.add_header(*header.split(": ", 1))
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    answer = error
sys.stdout.buffer.write(answer.read())
