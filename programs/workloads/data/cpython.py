"""Runs modules of CPython's tests, and prints the result of each test, in the order of their names.

A test that is named in SKIPPED does not run. Messages of the tests go to /tmp/log, with the reason of each failure.
"""

import io
import os
import sys
import tempfile
import unittest

SKIPPED = {
    "UDPLITE": "Linux 7.3 has no UDP-Lite, and Linux 6.12 has it",
}


class Results(unittest.TestResult):
    """Collects one result for each test: the last of those that its parts report."""

    def __init__(self):
        super().__init__()
        self.seen = {}
        self.log = open("/tmp/log", "w")

    def note(self, test, result, reason=None):
        name = test.id()
        if self.seen.get(name, "ok") == "ok":
            self.seen[name] = result
        if reason:
            print(name, result, reason, file=self.log, flush=True)

    def startTest(self, test):
        super().startTest(test)
        print(test.id(), file=self.log, flush=True)

    def addSuccess(self, test):
        self.note(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "FAILED", self._exc_info_to_string(error, test))

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "ERROR", self._exc_info_to_string(error, test))

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.note(test, "failed as expected")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "succeeded UNEXPECTEDLY")

    def addSubTest(self, test, part, error):
        super().addSubTest(test, part, error)
        if error is not None:
            self.note(test, "FAILED", self._exc_info_to_string(error, test))


def tests_of(suite):
    """Returns the tests of a suite that are to run, in their order."""
    chosen = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            chosen.addTest(tests_of(test))
        elif not any(part in test.id() for part in SKIPPED):
            chosen.addTest(test)
    return chosen


def main():
    os.chdir(tempfile.mkdtemp())
    # The tests' own messages, also those of their children.
    messages = os.open("messages", os.O_WRONLY | os.O_CREAT, 0o600)
    output = os.dup(1)
    os.dup2(messages, 1)
    os.dup2(messages, 2)
    results = Results()
    for module in sys.argv[1:]:
        suite = unittest.defaultTestLoader.loadTestsFromName("test." + module)
        tests_of(suite).run(results)
    with os.fdopen(output, "w") as report:
        for name, result in sorted(results.seen.items()):
            print(name, result, file=report)
        counts = {}
        for result in results.seen.values():
            counts[result] = counts.get(result, 0) + 1
        print(*(f"{count} {result}" for result, count in sorted(counts.items())), sep=", ", file=report)


if __name__ == "__main__":
    main()
