"""What is measured. Each function returns a list of results for the table and for the JSON document."""

import collections
import os
import shutil
import signal
import statistics
import threading

import native_client
import prompts
import servers

# one line of the table; target: a word of what was promised, or ""; holds: None where nothing was
Result = collections.namedtuple("Result", "what strata other target holds", defaults=("", None))

RAM_MIB = 2048


def _ms(seconds):
    return round(seconds * 1000, 1)


def _p99(values):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


# -- gaps between tokens ------------------------------------------------------------------------------------------------


def _answer_beside(port, prompt, count, long_prompt):
    """(answer, gaps while long_prompt was being read, how long that took). The read begins at the 20th token."""
    reader = {}

    def read():
        reader["answer"] = native_client.complete(port, long_prompt, 1)

    thread = threading.Thread(target=read)

    def start_at_20(answer):
        if len(answer.times_s) == 20:
            thread.start()

    answer = native_client.complete(port, prompt, count, on_token=start_at_20)
    thread.join()
    read_end_s = reader["answer"].times_s[-1]
    return answer.gaps_s(reader["answer"].started_s, read_end_s), read_end_s - reader["answer"].started_s


def _gaps_of(port, make, options):
    """The gaps alone and beside a read, of answers that follow the same prompt."""
    prompt = make.next(options.tokens)
    native_client.complete(port, prompt, 1)
    alone = native_client.complete(port, prompt, options.answer).gaps_s()[20:]
    beside, read_s = _answer_beside(port, prompt, options.answer, make.next(options.tokens))
    return alone, beside, read_s


def _spread(gaps):
    return f"{_ms(statistics.median(gaps))} / {_ms(_p99(gaps))} / {_ms(max(gaps))} ms"


def gaps(options):
    with servers.strata(options, 2, RAM_MIB) as server:
        make = prompts.Prompts(server.port)
        alone, beside, read_s = _gaps_of(server.port, make, options)
    other = None
    if options.llama_server:
        with servers.LlamaServer(options, 2, RAM_MIB) as llama:
            other = _gaps_of(llama.port, make, options)
    middle = statistics.median(alone)

    def say(of, value):
        return value(*other) if other else ""

    def ratio(base, of, value):
        return f"{value(of) / statistics.median(base):.2f}"

    rows = [
        Result("gaps of an answer alone: median / p99 / max", _spread(alone), say(other, lambda a, b, s: _spread(a))),
        Result("  p99 over the median: what the machine adds", ratio(alone, alone, _p99),
               say(other, lambda a, b, s: ratio(a, a, _p99))),
        Result("gaps while another slot reads: median / p99 / max", _spread(beside), say(other, lambda a, b, s: _spread(b)))]
    for name, value in (("median", statistics.median), ("p99", _p99), ("max", max)):
        rows.append(Result(f"  {name} over the median alone", ratio(alone, beside, value),
                           say(other, lambda a, b, s, v=value: ratio(a, b, v)), "< 2", value(beside) < 2 * middle))
    rows.append(Result("that read took (it ends sooner once the answer has ended)", f"{read_s:.1f} s",
                       say(other, lambda a, b, s: f"{s:.1f} s")))
    return rows


# -- reading and writing speed ------------------------------------------------------------------------------------------


Speed = collections.namedtuple("Speed", "reading writing processor_ms")


def _speed_of(server, prompt, options):
    """Tokens a second by the server's own clock, and processor time a token over the whole request."""
    before_s = servers.processor_s(server.process.pid)
    answer = native_client.complete(server.port, prompt, options.speed_answer)
    if answer.reused:
        raise AssertionError(f"{answer.reused} tokens of a new prompt were reused")
    used_s = servers.processor_s(server.process.pid) - before_s
    return Speed(answer.timings["prompt_per_second"], answer.timings["predicted_per_second"],
                 1000 * used_s / (len(prompt) + options.speed_answer))


def _speed_rows(mine, theirs, repeats):
    for field, what, higher_is_better in (("reading", "reading, tokens/s", True), ("writing", "writing, tokens/s", True),
                                          ("processor_ms", "processor time, ms a token", False)):
        own = statistics.median(getattr(speed, field) for speed in mine)
        other = statistics.median(getattr(speed, field) for speed in theirs)
        ratio = own / other
        yield Result(f"{what} (median of {repeats})", f"{own:.2f}", f"{other:.2f}")
        yield Result("  ratio", f"{ratio:.3f}", "", ">= 0.95" if higher_is_better else "<= 1.05",
                     ratio >= 0.95 if higher_is_better else ratio <= 1.05)


def speed(options):
    """The same new prompts to both in turn, so that what else the machine does meets both. What another program takes away
    from the time does not count in the processor time."""
    mine, theirs = [], []
    with servers.strata(options, 1, RAM_MIB) as server, servers.LlamaServer(options, 1, RAM_MIB) as llama:
        make = prompts.Prompts(server.port)
        order = [(server, mine), (llama, theirs)]
        for _ in range(options.repeats):
            prompt = make.next(options.tokens)
            for each, speeds in order:
                speeds.append(_speed_of(each, prompt, options))
            order.reverse()
    return list(_speed_rows(mine, theirs, options.repeats))


# -- five conversations over two slots ----------------------------------------------------------------------------------


class Conversation:
    def __init__(self, tokens):
        self.tokens = tokens

    def turn(self, port, count=16):
        answer = native_client.complete(port, self.tokens, count)
        self.tokens = self.tokens + answer.tokens
        return answer

    def ask(self, tokens):
        self.tokens = self.tokens + tokens


def _round(port, conversations, follow_up=None):
    answers = []
    for conversation in conversations:
        if follow_up:
            conversation.ask(follow_up)
        answers.append(conversation.turn(port))
    return answers


def _first_tokens(answers):
    times = [answer.first_token_s for answer in answers]
    return statistics.median(times), f"{_ms(statistics.median(times))} ms (most {_ms(max(times))})"


def _reused(answers):
    return ", ".join(str(answer.reused) for answer in answers)


def _strata_rounds(options, texts, folder, follow_up):
    conversations = [Conversation(text) for text in texts]
    with servers.strata(options, 2, RAM_MIB, folder) as server:
        rounds = [_round(server.port, conversations), _round(server.port, conversations, follow_up)]
        if (status := server.stop(signal.SIGTERM)) != 0:
            raise AssertionError(f"strata ended with status {status}")
    with servers.strata(options, 2, RAM_MIB, folder) as server:
        rounds.append(_round(server.port, conversations, follow_up))
    return rounds


def _llama_rounds(options, texts, follow_up):
    conversations = [Conversation(text) for text in texts]
    with servers.LlamaServer(options, 2, RAM_MIB) as llama:
        rounds = [_round(llama.port, conversations), _round(llama.port, conversations, follow_up)]
    with servers.LlamaServer(options, 2, RAM_MIB) as llama:  # it keeps nothing: one read says enough
        rounds.append(_round(llama.port, conversations[:1], follow_up))
    return rounds


def switching(options):
    folder = os.path.join(options.work, "conversations")
    shutil.rmtree(folder, ignore_errors=True)
    with servers.strata(options, 1, 0) as server:
        make = prompts.Prompts(server.port)
        texts = [make.next(options.tokens) for _ in range(5)]
        follow_up = make.follow_up
    mine = _strata_rounds(options, texts, folder, follow_up)
    theirs = _llama_rounds(options, texts, follow_up)
    shutil.rmtree(folder, ignore_errors=True)
    read_s, read = _first_tokens(theirs[0])
    back_s, back = _first_tokens(mine[1])
    their_back_s, their_back = _first_tokens(theirs[1])
    disk_s, disk = _first_tokens(mine[2])
    _, their_restart = _first_tokens(theirs[2])
    return [
        Result("five conversations over two slots, first round: first token", _first_tokens(mine[0])[1], read),
        Result("second round: first token", back, their_back, "<= of it", back_s <= their_back_s),
        Result("  tokens reused", _reused(mine[1]), _reused(theirs[1])),
        Result("after a restart: first token", disk, their_restart, "10x sooner", theirs[2][0].first_token_s >= 10 * disk_s),
        Result("  tokens reused", _reused(mine[2]), _reused(theirs[2])),
        Result("  times sooner than its full read", f"{theirs[2][0].first_token_s / disk_s:.1f}", "")]
