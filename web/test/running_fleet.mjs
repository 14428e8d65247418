// A fleet of real processes for the tests of the page: a server with an agent, two more agents, replicas and a person's job, on GPUs that
// a script describes (tests/double/README.md). Everything it starts has its folder in the environment, by which it is found and ended.
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Serves on its port, a request for work within some milliseconds; its process is the one that the driver lists on its GPU.
const replica_program = `
import http.server, os, random, sys, time
for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","):
    if gpu: open(os.path.join(sys.argv[2], gpu + ".pid"), "w").write(str(os.getpid()))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/": time.sleep(random.uniform(0.01, 0.06))
        self.send_response(200); self.end_headers()
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
`;

export class RunningFleet {
  #started = [];
  port = 0;
  constructor({ berth, double }) {
    this.folder = mkdtempSync(join(tmpdir(), 'berth-page-'));
    this.command = resolve(berth); // replicas run in folders of their own
    this.double = resolve(double);
    writeFileSync(join(this.folder, 'serve.py'), replica_program);
    writeFileSync(join(this.folder, 'agent.toml'), 'egress = false\n');
  }

  environment(node) {
    const inherited = Object.entries(process.env).filter(([name]) => !/^(BERTH_|CUDA_|OCL_|POCL_)/.test(name));
    return { ...Object.fromEntries(inherited), LD_LIBRARY_PATH: this.double, BERTH_DOUBLE: join(this.folder, node, 'machine.txt'), BERTH_RUNTIME_DIR: join(this.folder, node), OCL_ICD_VENDORS: join(this.folder, 'no-opencl') };
  }
  // `gpus`: [name, uuid, memory, busy percent, bytes that the replica on it uses].
  machine(node, gpus, more = []) {
    mkdirSync(join(this.folder, node), { recursive: true, mode: 0o700 });
    const lines = gpus.map(([name, uuid, memory, busy]) => `gpu name="${name}" uuid=${uuid} memory=${memory} utilization=${busy} temperature=${34 + Math.round(busy / 2.8)} power_mw=${70 + Math.round(busy * 5.8)}000`);
    gpus.forEach(([, uuid, , , used], i) => {
      if (used) lines.push(`process gpu=${i} pid_file=${this.folder}/${uuid}.pid bytes=${used}`);
      lines.push(`lost nvml* gpu=${i} file=${this.folder}/${uuid}.lost times=always`);
    });
    writeFileSync(join(this.folder, node, 'machine.txt'), [...lines, ...more, ''].join('\n'));
  }
  lose_gpu(uuid) {
    writeFileSync(join(this.folder, `${uuid}.lost`), '');
  }

  #start(node, words) {
    const log = openSync(join(this.folder, `${node}.log`), 'a');
    const child = spawn(this.command, words, { env: this.environment(node), stdio: ['ignore', log, log] });
    this.#started.push(child);
    return child;
  }
  log(node) {
    return readFileSync(join(this.folder, `${node}.log`), 'utf8');
  }
  // The server, with the agent of its own machine.
  async serve() {
    const before = existsSync(join(this.folder, 'head.log')) ? this.log('head').length : 0;
    this.server = this.#start('head', ['serve', '--listen', `127.0.0.1:${this.port}`, '--name', 'head', '--gateway', '127.0.0.1:0', '--agent-file', join(this.folder, 'agent.toml')]);
    const said = await this.until(() => /serves http:\/\/127\.0\.0\.1:(\d+)[^]*yours is in ([^\s"]+)/.exec(this.log('head').slice(before)), 'the server starts');
    this.port = Number(said[1]);
    this.url = `http://127.0.0.1:${this.port}/`;
    this.token_file = said[2];
  }
  async stop_server() {
    this.server.kill('SIGKILL');
    await this.until(() => this.server.exitCode !== null || this.server.signalCode !== null, 'the server ends');
  }
  async add_node(name) {
    const file = join(this.folder, `${name}.token`);
    writeFileSync(file, await this.berth('token', 'add', 'join'), { mode: 0o600 });
    this.#start(name, ['agent', '--join', this.url, '--name', name, '--agent-file', join(this.folder, 'agent.toml'), '--token-file', file]);
  }

  // A command of the user who runs the server: what it prints. Status 3, valid but does not fit, is no failure.
  async berth(...words) {
    try {
      return (await run(this.command, words, { env: this.environment('head') })).stdout;
    } catch (error) {
      if (error.code === 3) return error.stdout;
      throw new Error(`berth ${words.join(' ')}: ${error.stderr}`);
    }
  }
  // A job of a person on a node.
  job(node, ...words) {
    return run(this.command, ['run', '-d', ...words], { env: this.environment(node) });
  }
  async get(what) {
    return JSON.parse(await this.berth(what, '--json'));
  }
  serving(name, more) {
    return `\n[[deployment]]\nname = "${name}"\ncommand = ["python3", "-SE", "${this.folder}/serve.py", "{port}", "${this.folder}"]\nreadiness = { http = "/", every = "200ms" }\nstop_grace = "1s"\n${more}\n`;
  }
  apply(deployments, ...words) {
    const file = join(this.folder, 'project.toml');
    writeFileSync(file, `[cluster]\nname = "studio"\n${deployments.join('')}`);
    return this.berth('apply', file, ...words);
  }

  // Clients that ask the gateway for this path, each as soon as it has its last answer, every request with another key. Ends them, and returns
  // the statuses of the answers.
  async ask(path, clients = 4) {
    const { gateways } = await this.until(async () => {
      const answer = await this.get('endpoints');
      return answer.gateways.length > 0 && answer;
    }, 'the gateway is known');
    const statuses = [];
    let stopped = false;
    const client = async (number) => {
      for (let i = 0; !stopped; i += 1) {
        const answer = await fetch(`http://${gateways[0].address}${path}`, { headers: { 'x-session': `${number}-${i}` } });
        await answer.arrayBuffer();
        statuses.push(answer.status);
      }
    };
    const ended = Promise.all(Array.from({ length: clients }, (_, number) => client(number)));
    return { gateway: gateways[0], stop: async () => ((stopped = true), await ended, statuses) };
  }

  async until(condition, what, seconds = 90) {
    for (const deadline = Date.now() + 1000 * seconds; ; await sleep(50)) {
      const found = await condition();
      if (found) return found;
      if (Date.now() > deadline) throw new Error(`not within ${seconds} s: ${what}\n${readdirSync(this.folder).filter((file) => file.endsWith('.log')).map((file) => `${file}:\n${readFileSync(join(this.folder, file), 'utf8').slice(-2000)}`).join('\n')}`);
    }
  }

  async close() {
    for (const child of this.#started) child.kill('SIGKILL');
    // Replicas and jobs outlive server and agents; a supervisor may start its command again.
    for (let tries = 0; tries < 40; tries += 1) {
      const left = readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid && this.#is_ours(pid));
      if (left.length === 0) break;
      for (const pid of left) {
        try {
          process.kill(Number(pid), 'SIGKILL');
        } catch {} // it has ended
      }
      await sleep(50);
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
  #is_ours(pid) {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(this.folder) && !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
    } catch {
      return false;
    }
  }
}
