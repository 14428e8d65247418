// A small service whose replicas a fleet can run: renders tiles of the Mandelbrot set with a kernel on whatever device
// it was given, and answers over HTTP.
//   tiles PORT
//   GET /health             "ok"
//   GET /tile/ZOOM/X/Y      an image (BMP, 256 x 256 grey), with the device that rendered it in the header Berth-Device
// One connection at a time and no keep-alive: it shows how a replica uses Berth, not how to write a web server.
#include <berth/scheduler.hpp>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t side = 256;

// The same arithmetic in three languages.
#define BERTH_ESCAPE                                                               \
  float cx = left + step * (float)(i % side), cy = top + step * (float)(i / side); \
  float x = 0, y = 0;                                                              \
  unsigned n = 0;                                                                  \
  while (n < 255 && x * x + y * y < 4) {                                           \
    float t = x * x - y * y + cx;                                                  \
    y = 2 * x * y + cy;                                                            \
    x = t;                                                                         \
    ++n;                                                                           \
  }
#define BERTH_TEXT(...) #__VA_ARGS__
#define BERTH_EXPANDED(...) BERTH_TEXT(__VA_ARGS__)

const berth::Kernel mandelbrot({
    .entry = "mandelbrot",
    .host =
        [](const berth::LaunchShape&, std::uint32_t begin, std::uint32_t end, const berth::HostArguments& arguments) {
          const auto grey = arguments.buffer<std::uint8_t>(0);
          const float left = arguments.value<float>(1), top = arguments.value<float>(2),
                      step = arguments.value<float>(3);
          for (std::uint32_t i = begin; i < end; ++i) {
            BERTH_ESCAPE
            grey[i] = static_cast<std::uint8_t>(n);
          }
        },
    .opencl_c = "kernel void mandelbrot(global uchar* grey, float left, float top, float step, uint side) {"
                "  const size_t i = get_global_id(0);" BERTH_EXPANDED(BERTH_ESCAPE) "  grey[i] = n; }",
    .cuda_cpp = "extern \"C\" __global__ void mandelbrot(unsigned char* grey, float left, float top, float step,"
                "                                        unsigned side) {"
                "  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;"
                "  if (i >= side * side) return;" BERTH_EXPANDED(BERTH_ESCAPE) "  grey[i] = n; }",
});

struct Tile {
  unsigned zoom = 0, x = 0, y = 0;
};

berth::Result<std::vector<std::uint8_t>> render(berth::TaskContext& task, const Tile& tile) {
  const float width = 4.0f / static_cast<float>(1u << std::min(tile.zoom, 16u));
  const float left = -2.5f + width * static_cast<float>(tile.x), top = -2.0f + width * static_cast<float>(tile.y);
  const std::vector<std::uint8_t> empty(side * side);
  const berth::Buffer grey = BERTH_TRY(task.copy_in(empty));
  BERTH_TRY(task.launch(mandelbrot, {side * side}, {grey, left, top, width / side, side}));
  return task.copy_out<std::uint8_t>(grey);
}

// A grey bitmap with a palette of 256 shades.
std::string bitmap(const std::vector<std::uint8_t>& grey) {
  const std::uint32_t begin = 14 + 40 + 1024;
  std::string out = "BM";
  const auto put = [&](std::uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  };
  for (const std::uint32_t value : {begin + side * side, 0u, begin, 40u, side, side}) put(value, 4);
  put(1, 2), put(8, 2);
  for (const std::uint32_t value : {0u, side * side, 2835u, 2835u, 256u, 0u}) put(value, 4);
  for (std::uint32_t shade = 0; shade < 256; ++shade) put((255 - shade) * 0x010101u, 4);
  for (std::uint32_t row = side; row-- > 0;) out.append(reinterpret_cast<const char*>(&grey[row * side]), side);
  return out;
}

std::string answer(const berth::Scheduler& scheduler, const std::string& request) {
  const auto text = [](const char* status, const std::string& headers, const std::string& body) {
    return std::string("HTTP/1.1 ") + status +
           "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
  };
  Tile tile;
  if (request.starts_with("GET /health ")) return text("200 OK", "Content-Type: text/plain\r\n", "ok\n");
  if (std::sscanf(request.c_str(), "GET /tile/%u/%u/%u ", &tile.zoom, &tile.x, &tile.y) != 3)
    return text("404 Not Found", "Content-Type: text/plain\r\n", "there is /health and /tile/ZOOM/X/Y\n");
  const auto done =
      scheduler.run([&](berth::TaskContext& task) { return render(task, tile); }, {.kernels = {mandelbrot}});
  if (!done) return text("503 Service Unavailable", "Content-Type: text/plain\r\n", done.error().to_text() + "\n");
  return text("200 OK", "Content-Type: image/bmp\r\nBerth-Device: " + done->device.text() + "\r\n",
              bitmap(done->value));
}

berth::Result<int> serve(std::uint16_t port) {
  const auto pool = BERTH_TRY(berth::Pool::open_all());
  const auto scheduler = BERTH_TRY(berth::Scheduler::start(pool));
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0), on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(listener, 64) != 0)
    return berth::Error{berth::ErrorCode::io,
                        "cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno)};
  for (;;) {
    const int client = ::accept(listener, nullptr, nullptr);
    if (client < 0) continue;
    const timeval patience{5, 0};
    ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string request(4096, '\0');
    const ssize_t got = ::recv(client, request.data(), request.size(), 0);
    request.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
    const std::string reply = answer(scheduler, request);
    for (std::size_t sent = 0; sent < reply.size();) {
      const ssize_t now = ::send(client, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) break;
      sent += static_cast<std::size_t>(now);
    }
    ::close(client);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int port = argc == 2 ? std::atoi(argv[1]) : 0;
  if (port <= 0 || port > 65535) return std::fprintf(stderr, "usage: tiles PORT\n"), 2;
  const berth::Result<int> ended = serve(static_cast<std::uint16_t>(port));
  std::fprintf(stderr, "%s\n", ended.error().to_text().c_str());
  return 1;
}
