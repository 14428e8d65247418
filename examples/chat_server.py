"""A model server with the part of OpenAI's API that chats use: POST /v1/chat/completions, as one answer or as a stream of events.

The model is a Llama of `transformers` with random weights, and its tokens are bytes, so that nothing has to be downloaded: the text makes
no sense, but costs what a model of this size costs. Requests share a batch, which they enter and leave at any step. The batch always has the same
shape, so that a prompt has the same answer however busy the server is.

usage: chat_server.py [--fake] [--log FILE] PORT
  --fake      without PyTorch and a GPU: a formula instead of a model
  --log FILE  append a line for each request that begins"""
import argparse
import http.server
import json
import os
import queue
import threading
import time

SLOTS, LENGTH_MAX = 32, 512  # requests in a batch, tokens of one


class Llama:
    def __init__(self):
        import torch
        import transformers
        torch.manual_seed(1)
        config = transformers.LlamaConfig(vocab_size=256, hidden_size=1024, intermediate_size=2816, num_hidden_layers=24, num_attention_heads=16,
                                          num_key_value_heads=16, max_position_embeddings=LENGTH_MAX, initializer_range=0.05)
        with torch.device("cuda"):
            self.model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
            keys = torch.zeros(config.num_hidden_layers, 2, SLOTS, 16, LENGTH_MAX, 64, dtype=torch.bfloat16)
            self.rows, self.columns = torch.arange(SLOTS), torch.arange(LENGTH_MAX)
        # The default for attention does not give the same sums each time.
        self.model.set_attn_implementation("eager")
        rows = self.rows

        class Cache(transformers.Cache):
            """Each row of the batch has a length of its own."""

            def __init__(self):
                self.positions, self.layers = None, []

            def update(self, key, value, layer, *_, **__):
                for kept, new in zip(keys[layer], (key, value)):
                    kept[rows, :, self.positions] = new[:, :, 0]
                return keys[layer][0], keys[layer][1]

            def get_seq_length(self, *_, **__):
                return 0

        self.torch, self.cache = torch, Cache()
        self.about = {"torch": torch.__version__, "transformers": transformers.__version__, "type": str(self.model.dtype).removeprefix("torch."),
                      "parameters": sum(each.numel() for each in self.model.parameters()), "layers": config.num_hidden_layers}

    def step(self, tokens, positions):
        """Each row's next token, after `tokens` at `positions`."""
        torch = self.torch
        with torch.inference_mode():
            tokens, positions = torch.tensor([tokens, positions], device="cuda")
            mask = torch.where(self.columns <= positions[:, None], 0.0, torch.finfo(torch.bfloat16).min).to(torch.bfloat16)
            self.cache.positions = positions
            logits = self.model(tokens[:, None], attention_mask=mask[:, None, None], position_ids=positions[:, None], past_key_values=self.cache,
                                use_cache=True).logits
            return logits[:, -1].argmax(-1).tolist()


class Formula:
    about = {}

    def __init__(self):
        self.sums = [0] * SLOTS

    def step(self, tokens, positions):
        time.sleep(0.02)
        self.sums = [(token if position == 0 else 31 * before + token + position) % 65521 for before, token, position in zip(self.sums, tokens, positions)]
        return [each % 256 for each in self.sums]


class Request:
    def __init__(self, prompt, count):
        self.tokens, self.position, self.left = list(prompt), 0, count
        self.answer = queue.SimpleQueue()  # tokens
        self.is_abandoned = False


class Batch(threading.Thread):
    """Feeds each row one token a step: first those of its prompt, then those that the model has answered."""

    def __init__(self, model):
        super().__init__(daemon=True)
        self.model, self.slots = model, [None] * SLOTS
        self.waiting, self.changed = [], threading.Condition()
        model.step([0] * SLOTS, [0] * SLOTS)

    def add(self, request):
        with self.changed:
            self.waiting.append(request)
            self.changed.notify()

    def run(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting or any(self.slots))
                for slot, holder in enumerate(self.slots):
                    if not holder and self.waiting:
                        self.slots[slot] = self.waiting.pop(0)
            tokens = [each.tokens[each.position] if each else 0 for each in self.slots]
            answers = self.model.step(tokens, [each.position if each else 0 for each in self.slots])
            for slot, request in enumerate(self.slots):
                if not request:
                    continue
                request.position += 1
                if request.position == len(request.tokens):
                    request.tokens.append(answers[slot])
                    request.answer.put(answers[slot])
                    request.left -= 1
                if not request.left or request.is_abandoned:
                    self.slots[slot] = None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    batch = log = None

    def do_GET(self):
        self.answer(200, {"pid": os.getpid(), "model": self.batch.model.about})

    def do_POST(self):
        try:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = "\n".join(each["content"] for each in asked["messages"]).encode()
            count = int(asked.get("max_tokens", 64))
        except (KeyError, TypeError, ValueError) as error:
            return self.answer(400, {"error": {"message": f"the request is not a chat: {error!r}"}})
        if not prompt or count < 1 or len(prompt) + count > LENGTH_MAX:
            return self.answer(400, {"error": {"message": f"prompt and answer are empty, or longer than {LENGTH_MAX} tokens"}})
        if self.log:
            print(self.headers.get("x-request-id", "-"), os.environ.get("BERTH_REPLICA", "-"), file=self.log, flush=True)
        request = Request(prompt, count)
        self.batch.add(request)
        # Nothing is sent before the first token, so that a request which fails before it can be repeated.
        texts = (chr(request.answer.get()) for _ in range(count))
        if not asked.get("stream"):
            return self.answer(200, {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "".join(texts)}}]})
        try:
            self.stream(texts)
        except OSError:
            request.is_abandoned = self.close_connection = True

    def stream(self, texts):
        for number, text in enumerate(texts):
            if number == 0:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
            event = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
            self.send_chunk(f"id: {number}\ndata: {json.dumps(event)}\n\n".encode())
        self.send_chunk(b"data: [DONE]\n\n")
        self.send_chunk(b"")

    def send_chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--log", type=argparse.FileType("a"))
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    Handler.batch, Handler.log = Batch(Formula() if options.fake else Llama()), options.log
    Handler.batch.start()
    Server(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
