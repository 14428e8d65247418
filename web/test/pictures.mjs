// Pictures of the page for the documentation, of a fleet that runs.
import { mkdirSync } from 'node:fs';
import { desk, go, phone } from './browser.mjs';

export async function take_pictures(folder, browser, url, log_in, device) {
  mkdirSync(folder, { recursive: true });
  await new Promise((resolve) => setTimeout(resolve, 40_000)); // some history
  const pictures = [
    ['device-light', `fleet/gpu-1/${device}`, {}],
    ['device-dark', `fleet/gpu-1/${device}`, { scheme: 'dark' }],
    ['requests-light', 'requests', {}],
    ['requests-dark', 'requests', { scheme: 'dark' }],
    ['pending-light', 'pending', {}],
    ['phone-fleet', 'fleet', { phone: true }],
    ['phone-requests', 'requests', { phone: true }],
    ['phone-pending', 'pending', { phone: true, scheme: 'dark' }],
  ];
  for (const [name, view, { scheme: colorScheme = 'light', phone: small }] of pictures) {
    const page = await browser.newPage({ colorScheme, ...(small ? { ...phone, deviceScaleFactor: 2 } : desk) });
    await page.goto(url);
    await log_in(page);
    await page.locator('main [data-item]').first().waitFor();
    await go(page, url, view);
    await page.waitForTimeout(500);
    await page.screenshot({ path: `${folder}/${name}.png` });
    await page.close();
  }
}
