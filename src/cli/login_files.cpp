#include "cli/login_files.hpp"

#include <unistd.h>

#include "cli/server_access.hpp"
#include "format/json_reading.hpp"
#include "http/authority.hpp"
#include "http/url.hpp"
#include "world/files.hpp"
#include "world/runtime_folder.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace format;
using namespace world;
namespace json = boost::json;

Result<Login> login_for(const std::string& url) {
  const http::Url to = BERTH_TRY(http::parse_url(url));
  if (to.kind != http::Url::Kind::https)
    return Error{ErrorCode::invalid_argument, "berth login is for https:// addresses, and " + url + " is not one",
                 "on the server's own machine, set BERTH_TOKEN_FILE, or run the command as the server's user"};
  const std::string folder =
      BERTH_TRY(state_folder("login", IfMissing::accept)) + "/" + http::encoded(to.host) + "_" + to.port;
  return Login{folder, folder + "/identity.pem", folder + "/authority.pem"};
}

std::optional<Login> find_login(const std::string& url) {
  Result<Login> login = login_for(url);
  if (!login || ::access(login->certificate_file.c_str(), F_OK) != 0) return std::nullopt;
  if (::access(login->authority_file.c_str(), F_OK) != 0) login->authority_file.clear();
  return *std::move(login);
}

Result<NewLogin> ask_for_certificate(http::Client& client) {
  const http::CertificateRequest request = BERTH_TRY(http::make_certificate_request());
  const auto answer =
      client.request("POST", "/api/v1/certificate", document({{"certificate_request", request.request}}),
                     {.timeout = std::chrono::seconds(10)});
  if (!answer || answer->status != 200) {
    Error error = answer ? error_of_answer(answer->status, answer->body, client.url()) : answer.error();
    if (answer && answer->status == 401) error.advice = "berth token add on the server's machine creates another token";
    if (!answer && error.advice.empty()) error.advice = "check the address, and whether berth serve is running there";
    return error;
  }
  return read_document(answer->body, "the answer", [&](const json::value& value, const std::string& where) {
    const json::object& object = object_of(value, where);
    const auto text = [&](const char* key) { return text_of(member(object, key, where), where + "." + key); };
    return NewLogin{text("certificate") + request.key, text("authority"), text("id"), text("role")};
  });
}

void renew_login(http::Client& client, const std::string& certificate_file) {
  const auto times = http::certificate_times(certificate_file);
  const std::uint64_t now_s = wall_time_ms() / 1000;
  if (!times || !times->is_renewal_due(now_s) || now_s >= times->until_s) return;
  if (const auto renewed = ask_for_certificate(client))
    static_cast<void>(write_private_text(certificate_file, renewed->certificate_and_key));
}

}  // namespace berth::cli
