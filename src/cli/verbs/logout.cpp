// `berth logout`: removes the files of `berth login`.
#include <filesystem>

#include "cli/command_line.hpp"
#include "cli/login_files.hpp"
#include "cli/text/terminal.hpp"

namespace berth::cli {

void add_logout(const Verb& command) {
  const auto url = std::make_shared<std::string>();
  Verb verb = command.add("logout", "remove the certificate that berth login got for a server");
  verb.argument("URL", url.get(), "address of the server, as given to berth login");
  verb.run([url] {
    const Result<Login> login = login_for(*url);
    if (!login) return print_error(login.error());
    std::error_code failed;
    if (std::filesystem::remove_all(login->folder, failed) == 0 || failed)
      return print_error(
          {ErrorCode::not_found, "there is no login for " + *url, "berth login " + *url + " creates one"});
    return print(
        "logged out of " + *url +
        ": its certificate was removed from this machine; the token stays valid until an operator revokes it with "
        "berth token remove ID\n");
  });
}

}  // namespace berth::cli
