// Pictures of the main views: for the documentation, and to look at after a change.
import { empty_fleet, large_fleet } from './fleet.mjs';
import { Server } from './server.mjs';

export async function take_pictures(browser, folder, dist) {
  const servers = { small: new Server({ dist }), large: new Server({ dist, fleet: large_fleet() }), empty: new Server({ dist, fleet: empty_fleet() }), locked: new Server({ dist, token: 'x' }) };
  for (const server of Object.values(servers)) await server.listen();
  const device = `fleet/gpu-1/${servers.small.fleet.nodes[1].devices[2].id}`;
  const pictures = [
    ...['light', 'dark'].flatMap((scheme) => [
      [`fleet-${scheme}`, 'small', 'fleet', { scheme }],
      [`device-${scheme}`, 'small', device, { scheme }],
      [`pending-${scheme}`, 'small', 'pending', { scheme }],
      [`grid-${scheme}`, 'large', 'fleet', { scheme }],
    ]),
    ['grid-filtered', 'large', 'fleet?q=chat', {}],
    ['deployments', 'small', 'deployments/chat', {}],
    ['replicas', 'small', 'replicas', {}],
    ['replica', 'small', 'replicas/large/1', { scheme: 'dark' }],
    ['jobs', 'small', 'jobs', {}],
    ['events', 'small', 'events', { scheme: 'dark' }],
    ['node', 'small', 'fleet/gpu-2', {}],
    ['empty', 'empty', 'fleet', {}],
    ['login', 'locked', 'fleet', {}],
    ['lost', 'small', 'fleet', { lost: true }],
    ...['fleet', 'deployments', 'replicas', 'pending', 'events', 'jobs'].map((view, i) => [`phone-${view}`, 'small', view, { phone: true, scheme: i % 2 ? 'dark' : 'light' }]),
    ['phone-device', 'small', device, { phone: true }],
    ['phone-grid', 'large', 'fleet', { phone: true, scheme: 'dark' }],
  ];
  for (const [name, server, view, { scheme = 'light', phone, lost }] of pictures) {
    const page = await browser.newPage({ colorScheme: scheme, viewport: phone ? { width: 360, height: 740 } : { width: 1360, height: 860 }, deviceScaleFactor: phone ? 2 : 1 });
    await page.goto(`${servers[server].url}#/${view}`);
    await page.waitForTimeout(800);
    if (lost) {
      servers[server].away = true;
      servers[server].lose_connections();
      await page.waitForTimeout(5000);
      servers[server].away = false;
    }
    await page.screenshot({ path: `${folder}/${name}.png` });
    await page.close();
  }
  for (const server of Object.values(servers)) await server.close();
}
