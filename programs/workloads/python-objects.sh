# Python builds, serialises and parses 200,000 objects
# package: python3-minimal
/usr/bin/python3 -S -c '
import json
table = {str(i): [j for j in range(i % 20)] for i in range(40000)}
text = json.dumps(table)
print(len(text), len(json.loads(text)))'
