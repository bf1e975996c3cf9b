import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ILauncher } from '@jupyterlab/launcher';

import type { Actions } from './actions';
import { needsArguments } from './appArguments';
import { appIconOf, sessionIcon } from './icon';
import type { Model } from './model';
import type { Translate } from './i18n';
import type { App } from './types';

const COMMAND = 'bai:open-app';

/** Launcher tiles of the apps for which JupyterLab itself has no tile. */
export class LauncherTiles {
  private tiles = new Map<string, ReturnType<ILauncher['add']>>();

  constructor(
    app: JupyterFrontEnd,
    private readonly launcher: ILauncher | null,
    private readonly model: Model,
    actions: Actions,
    private readonly t: Translate
  ) {
    const find = (name: unknown): App | undefined => model.apps.find(item => item.name === name);
    app.commands.addCommand(COMMAND, {
      label: args => find(args['name'])?.title ?? t('open'),
      caption: args => {
        const known = find(args['name']);
        return known ? `${known.title}: ${t(`app-${known.state}`)}` : '';
      },
      // The launcher calls this without a name to get the icon of the section.
      icon: args => (typeof args['name'] === 'string' ? appIconOf(args['name']) : sessionIcon),
      execute: args => {
        const known = find(args['name']);
        if (known && needsArguments(known) && known.state !== 'running') {
          actions.startApp(known);
        } else if (known) {
          actions.openApp(known);
        }
      }
    });
    model.changed.connect(() => this.update());
  }

  private update(): void {
    const shown = this.model.apps.filter(hasTile);
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

function hasTile(app: App): boolean {
  return app.kind === 'process' || (app.kind === 'port' && app.state === 'running');
}
