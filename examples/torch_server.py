"""A model server of ten lines: multiplies a matrix on the GPU that it was given, for every request."""
import http.server, sys, torch

matrix = torch.randn(4096, 4096, device="cuda")

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"{(matrix @ matrix).norm().item():.1f} on {torch.cuda.get_device_properties(0).name}\n".encode()
        self.send_response(200), self.end_headers(), self.wfile.write(text)

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
