// `berth store`: backs up, restores and copies the store of a server.
#include <unistd.h>

#include <boost/json.hpp>
#include <memory>

#include "cli/command_line.hpp"
#include "cli/server_store.hpp"
#include "cli/text/terminal.hpp"
#include "format/json_text.hpp"
#include "store/backup.hpp"
#include "store/engine.hpp"

namespace berth::cli {
namespace {

struct StoreArguments {
  std::optional<std::string> store;
  std::string file, from, to;
  bool replace = false, json = false;
  store::IfNotEmpty if_not_empty() const { return replace ? store::IfNotEmpty::replace : store::IfNotEmpty::refuse; }
};

// Opens a store for reading.
Result<std::shared_ptr<store::Engine>> existing_store(const std::string& kind) {
  BERTH_TRY(check_store_exists(kind, "name it with --store, as it was given to berth serve"));
  return store::open_engine(kind);
}

Result<std::string> chosen_store(const StoreArguments& arguments) {
  return arguments.store ? *arguments.store : default_store();
}

Result<std::string> run_backup(const StoreArguments& arguments) {
  const std::shared_ptr<store::Engine> engine = BERTH_TRY(existing_store(BERTH_TRY(chosen_store(arguments))));
  BERTH_TRY(store::backup(*engine, arguments.file));
  if (arguments.json)
    return format::json_text(boost::json::object{{"store", engine->name()}, {"file", arguments.file}});
  return engine->name() + " is saved in " + arguments.file;
}

Result<std::string> run_restore(const StoreArguments& arguments) {
  BERTH_TRY(store::check_backup(arguments.file));  // before opening the store, which would create a missing one
  const std::shared_ptr<store::Engine> engine = BERTH_TRY(store::open_engine(BERTH_TRY(chosen_store(arguments))));
  BERTH_TRY(store::restore(*engine, arguments.file, arguments.if_not_empty()));
  return engine->name() + " is restored from " + arguments.file +
         "; tokens that were removed after the backup are valid again (berth token list)";
}

Result<std::string> run_copy(const StoreArguments& arguments) {
  const std::shared_ptr<store::Engine> from = BERTH_TRY(existing_store(arguments.from));
  const std::shared_ptr<store::Engine> to = BERTH_TRY(store::open_engine(arguments.to));
  BERTH_TRY(store::copy(*from, *to, arguments.if_not_empty()));
  return from->name() + " is copied to " + to->name();
}

// Restores the store from itself, which raises its numbers above all those that agents may have seen.
Result<std::string> run_advance(const StoreArguments& arguments) {
  const std::string kind = BERTH_TRY(chosen_store(arguments));
  if (!kind.starts_with("sqlite:"))
    return Error{ErrorCode::invalid_argument, kind + " is not a persistent store", "name one with --store"};
  const std::shared_ptr<store::Engine> engine = BERTH_TRY(existing_store(kind));
  const std::string file = kind.substr(7) + ".before-advance";
  // If an earlier run was interrupted, this file contains the whole store. Otherwise an existing file is useless.
  const bool is_begun = ::access(file.c_str(), F_OK) == 0 && BERTH_TRY(store::is_half_restored(*engine));
  if (!is_begun) {
    ::unlink(file.c_str());
    BERTH_TRY(store::backup(*engine, file));
  }
  const Result<void> restored = store::restore(*engine, file, store::IfNotEmpty::replace);
  if (restored || restored.error().code == ErrorCode::unavailable) ::unlink(file.c_str());
  BERTH_TRY(restored);
  return "nodes will accept the store " + engine->name() + " again";
}

int print_result(const Result<std::string>& result) {
  return result ? print(*result + "\n") : print_error(result.error());
}

}  // namespace

void add_store(const Verb& command) {
  const Verb verb = command.add("store", "back up, restore and copy the store of a server");
  const auto arguments = std::make_shared<StoreArguments>();
  const char* const which = "store to use, as sqlite:PATH; by default that of berth serve";
  const char* const replace = "replace a store that is not empty";

  Verb backup = verb.add("backup", "write the whole store to a file; the server may be running");
  backup.argument("FILE", &arguments->file, "file to create, with mode 0600");
  backup.option("--store", "STORE", &arguments->store, which);
  backup.flag("--json", arguments->json, "print the store and the file as one JSON object");
  backup.run([arguments] { return print_result(run_backup(*arguments)); });

  Verb restore = verb.add("restore", "fill an empty store from a backup; the server must not be running");
  restore.argument("FILE", &arguments->file, "file from berth store backup");
  restore.option("--store", "STORE", &arguments->store, which);
  restore.flag("--replace", arguments->replace, replace);
  restore.run([arguments] { return print_result(run_restore(*arguments)); });

  Verb advance =
      verb.add("advance",
               "make nodes accept a store that is older than the last one they accepted, such as a copied file; the "
               "server must not be running");
  advance.option("--store", "STORE", &arguments->store, which);
  advance.run([arguments] { return print_result(run_advance(*arguments)); });

  Verb copy = verb.add("copy", "copy a store into another one; no server may be using either of them");
  copy.argument("FROM", &arguments->from, "sqlite:PATH");
  copy.argument("TO", &arguments->to, "sqlite:PATH");
  copy.flag("--replace", arguments->replace, replace);
  copy.run([arguments] { return print_result(run_copy(*arguments)); });
}

}  // namespace berth::cli
