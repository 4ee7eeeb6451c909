"""Stands between an agent and the server, for courses that a small model would not take by itself. Every request is
served by the server first; then another message may be put into the answer in the model's place. What the server says
of its work (usage, timings) stays."""

import http.server
import json
import threading
import urllib.error
import urllib.request

SERVED_TOKENS = 4  # of the answer that is replaced
DEADLINE_S = 240


def said(text):
    return {"role": "assistant", "content": text}


def called(name, arguments, number):
    return {"role": "assistant", "content": None, "tool_calls": [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]}


class Proxy:
    """course(body) is the message that the agent gets for this request; it is asked in the order of the requests."""

    def __init__(self, base_url, course):
        self.requests = []  # (body, answer) of chats, in their order
        self.errors = []
        self._base = base_url
        self._course = course
        self._lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                proxy.serve(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        status, answer = self._ask(handler.path, {**body, "stream": False, "max_tokens": SERVED_TOKENS})
        if status == 200:
            with self._lock:
                self.requests.append((body, answer))
                message = self._course(body)
            answer = {**answer, "choices": [{**answer["choices"][0], "message": message, "finish_reason":
                                             "tool_calls" if message.get("tool_calls") else "stop"}]}
        else:
            self.errors.append(answer)
        document = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(document)))
        handler.end_headers()
        handler.wfile.write(document)

    def _ask(self, path, body):
        request = urllib.request.Request(self._base.removesuffix("/v1") + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=DEADLINE_S) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
