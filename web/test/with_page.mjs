// What the tests of the page in a browser share: a page with a server of made-up answers. `--dist DIR` is the built page, `--pictures DIR` writes a
// picture of the large fleet.
import test, { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch, open_page } from './browser.mjs';
import { Server } from './server.mjs';

export const { values: options } = parseArgs({ options: { dist: { type: 'string', default: fileURLToPath(new URL('../dist', import.meta.url)) }, pictures: { type: 'string' } } });
export const dist = `${options.dist}/`;
let browser;
before(async () => (browser = await launch('page_in_browser')));
after(() => browser?.close());

// Runs `body` with a server and a page on it; ends with a check that the page did nothing it must not do.
export function with_page(name, { hash = '#/fleet', allow, context, ...server_options }, body) {
  test(name, { timeout: 180_000 }, async () => {
    const server = new Server({ dist, ...server_options });
    await server.listen();
    const { page, innocent } = await open_page(browser, server.url, { allow, ...context });
    try {
      await page.goto(server.url + hash);
      await body(page, server);
      innocent();
    } finally {
      await page.close();
      await server.close();
    }
  });
}
export const sees = (page, text) => page.getByText(text).first().waitFor();
