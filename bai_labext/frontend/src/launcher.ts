import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ILauncher } from '@jupyterlab/launcher';

import type { Actions } from './actions';
import { asksFirst } from './appstart';
import { iconOf, sessionIcon } from './icon';
import type { Model } from './model';
import type { Translate } from './texts';
import type { App } from './types';

const COMMAND = 'bai:open-app';

/** A launcher tile for every offered app that JupyterLab has no tile for. */
export class Tiles {
  private tiles = new Map<string, ReturnType<ILauncher['add']>>();

  constructor(
    app: JupyterFrontEnd,
    private readonly launcher: ILauncher | null,
    private readonly model: Model,
    actions: Actions,
    private readonly t: Translate
  ) {
    const named = (name: unknown): App | undefined => model.apps.find(item => item.name === name);
    app.commands.addCommand(COMMAND, {
      label: args => named(args['name'])?.title ?? t('open'),
      caption: args => {
        const found = named(args['name']);
        return found ? `${found.title}: ${t(`app-${found.state}`)}` : '';
      },
      // The launcher requests a section's icon without naming a tile.
      icon: args => (typeof args['name'] === 'string' ? iconOf(args['name']) : sessionIcon),
      execute: args => {
        const found = named(args['name']);
        if (found && asksFirst(found) && found.state !== 'running') {
          actions.startApp(found);
        } else if (found) {
          actions.openApp(found);
        }
      }
    });
    model.changed.connect(() => this.look());
  }

  private look(): void {
    const shown = this.model.apps.filter(isTile);
    for (const [name, tile] of this.tiles) {
      if (!shown.some(app => app.name === name)) {
        tile.dispose();
        this.tiles.delete(name);
      }
    }
    for (const [rank, app] of shown.entries()) {
      if (this.launcher && !this.tiles.has(app.name)) {
        const args = { name: app.name };
        const category = this.t('apps-of-session');
        this.tiles.set(app.name, this.launcher.add({ command: COMMAND, args, category, rank }));
      }
    }
  }
}

/** Apps with JupyterLab's own tiles are left out. */
function isTile(app: App): boolean {
  return app.kind === 'process' || (app.kind === 'port' && app.state === 'running');
}
