import http.server

from greeting import greeting


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = greeting(self.path[1:] or "world").encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
