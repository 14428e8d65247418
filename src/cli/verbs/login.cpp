// `berth login`: exchanges a token for a user's certificate.
#include <termios.h>
#include <unistd.h>

#include <iostream>

#include "cli/login_files.hpp"
#include "cli/server_access.hpp"
#include "http/secret.hpp"
#include "world/files.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {

using namespace world;
namespace {

struct LoginArguments {
  std::string url, ca_file;
  std::optional<std::string> token_file;
};

// On a terminal, the token is not echoed.
std::string typed_token() {
  termios before{};
  const bool is_terminal = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before) == 0;
  if (is_terminal) {
    termios silent = before;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
    std::fputs("token: ", stderr);
  }
  std::string line;
  std::getline(std::cin, line);
  if (is_terminal) {
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    std::fputs("\n", stderr);
  }
  line.erase(line.find_last_not_of(" \t\r\n") + 1);
  return line;
}

Result<std::string> log_in(const LoginArguments& arguments) {
  const Login login = BERTH_TRY(login_for(arguments.url));
  http::ClientOptions options;
  options.url = arguments.url;
  options.ca_file = arguments.ca_file;
  options.token =
      arguments.token_file ? BERTH_TRY(read_token_file(*arguments.token_file, "--token-file")) : typed_token();
  if (options.token.empty())
    return Error{ErrorCode::invalid_argument, "there is no token on standard input",
                 "berth token add deploy on the server's machine prints one"};
  if (options.ca_file.empty()) options.fingerprint = http::parse_token(options.token).fingerprint;
  const bool is_by_fingerprint = !options.fingerprint.empty();
  const std::string authority = options.ca_file.empty() ? "" : BERTH_TRY(read_text(options.ca_file));
  http::Client client = BERTH_TRY(http::Client::create(std::move(options)));
  const NewLogin made = BERTH_TRY(ask_for_certificate(client));
  BERTH_TRY(state_folder("login"));
  BERTH_TRY(private_folder(login.folder));
  if (is_by_fingerprint || !authority.empty())
    BERTH_TRY(write_private_text(login.authority_file, is_by_fingerprint ? made.authority : authority));
  else
    ::unlink(login.authority_file.c_str());
  BERTH_TRY(write_private_text(login.certificate_file, made.certificate_and_key));
  return "logged in at " + arguments.url + " as token " + made.id + " of role " + made.role + "; use --server " +
         arguments.url + " or BERTH_SERVER\n";
}

}  // namespace

void add_login(const Verb& command) {
  const auto arguments = std::make_shared<LoginArguments>();
  Verb verb = command.add("login", "get a certificate for a server on another machine, in exchange for a token");
  verb.argument("URL", &arguments->url, "address of the server, such as https://head:8443");
  verb.option("--token-file", "FILE", &arguments->token_file,
              "file with a token from berth token add; without it the token is read from standard input");
  verb.option("--ca", "FILE", &arguments->ca_file,
              "CA certificates to trust, if your own authority signed the server's certificate");
  verb.footer(
      {"The token carries the fingerprint that identifies the server. Commands with --server URL or "
       "BERTH_SERVER then use the certificate and renew it; revoking the token invalidates it."});
  verb.run([arguments] {
    const Result<std::string> text = log_in(*arguments);
    return text ? print(*text) : print_error(text.error());
  });
}

}  // namespace berth::cli
