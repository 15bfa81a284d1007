"""A cluster in this process, for tests of what is sent to workers and what comes back."""

import pickle

from cloudpickle import dumps

from quorate.core.errors import ClusterLost


class Here:
    """A cluster in this process. What is sent is pickled, results can be lost, and `got` is all that was asked for."""

    def __init__(self, workers=3):
        self.workers, self.got, self.closed, self.lost = workers, [], 0, 0
        self.made = []

    def call(self, function, *arguments):
        return self.spread(lambda *given: [function(*given)], arguments, 1, several=True)[0]

    def spread(self, function, argument, outputs, *, several=False):
        arguments = argument if several else (argument,)
        sent = [one if isinstance(one, Result) else pickle.loads(dumps(one)) for one in arguments]
        task = Task(function, sent)
        self.made += (results := [Result(task, place) for place in range(outputs)])
        return results

    def get(self, reference):
        if self.lost:
            self.lost -= 1
            raise ClusterLost("gone")
        self.got.append(pickle.dumps(reference.value()))
        return pickle.loads(self.got[-1])

    def lose(self):
        """Let all workers die: what they had is made again."""
        for result in self.made:
            result.task.items = None

    def renew(self):
        self.lose()

    def drop(self, references):
        pass

    def close(self):
        self.closed += 1


class Task:
    def __init__(self, function, arguments):
        self.function, self.arguments, self.items = function, arguments, None

    def run(self):
        if self.items is None:
            given = [one.value() if isinstance(one, Result) else one for one in self.arguments]
            self.items = pickle.loads(dumps(list(self.function(*given))))
        return self.items


class Result:
    def __init__(self, task, place):
        self.task, self.place = task, place

    def value(self):
        return self.task.run()[self.place]
