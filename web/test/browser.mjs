// What the tests in a browser share: Chromium, a page that is held to what a page may do, and checks of what it shows.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

// Exits with 77 where there is no browser: a skipped test.
export async function launch(name, executable = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)) {
  if (!executable) {
    console.log(`[  SKIPPED ] ${name}: chromium is missing, the page was not tried in a browser`);
    process.exit(77);
  }
  // A sandbox of its own needs rights that root in a container does not have.
  return chromium.launch({ executablePath: executable, args: process.getuid() === 0 ? ['--no-sandbox'] : [] });
}

export const desk = { viewport: { width: 1360, height: 860 } };
export const phone = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
export const lost_request = [/Failed to load resource: net::ERR/, /net::ERR_/];

// A page, and `innocent()`, which fails if it complained, asked others than `url`, or broke the content security policy.
export async function open_page(browser, url, { allow = [], ...context } = {}) {
  const page = await browser.newPage({ ...desk, ...context });
  page.setDefaultTimeout(60_000); // a machine that does other work as well
  const complaints = [];
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => request.url().startsWith(url) || complaints.push(`asks ${request.url()}`));
  await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  const innocent = () => assert.deepEqual(complaints.filter((text) => !allow.some((pattern) => pattern.test(text))), []);
  return { page, innocent };
}

// Goes to a view and waits until it shows something, so that a page without content passes no test of its content.
export async function go(page, url, view) {
  await page.goto(`${url}#/${view}`);
  await page.locator('main :is([data-item], .empty)').first().waitFor();
  if (view.split('/').length > 1) await page.locator('aside .content > :not(.problem)').first().waitFor();
  if (view.includes('/GPU-')) await page.locator('aside .uplot canvas').first().waitFor();
  await page.waitForTimeout(100); // what follows from the answer is drawn
}

// What reaches over the right edge of the window. On a phone `innerWidth` grows with what is too wide; the width of the root element does not.
export const too_wide = (page) =>
  page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    const over = scrollWidth - clientWidth;
    return over <= 0 ? [] : [over, ...[...document.querySelectorAll('body *')].filter((element) => element.getBoundingClientRect().right > clientWidth + 1).slice(0, 3).map((element) => element.outerHTML.slice(0, 120))];
  });

export const nameless_controls = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll('a, button, input, select, textarea, summary, dialog, [role=img], [role=region]')]
      .filter((element) => !(element.getAttribute('aria-label') || (element.tagName !== 'SELECT' && element.textContent.trim()) || element.labels?.length))
      .map((element) => element.outerHTML.slice(0, 100)));

// Tables that do not name each of their columns.
export const headless_tables = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll('table')]
      .filter((table) => {
        const columns = Math.max(...[...table.rows].map((row) => [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0)));
        const heads = [...(table.tHead?.rows[0]?.cells ?? [])].filter((cell) => cell.tagName === 'TH' && cell.textContent.trim());
        return heads.length !== columns;
      })
      .map((table) => table.outerHTML.slice(0, 200)),
  );
