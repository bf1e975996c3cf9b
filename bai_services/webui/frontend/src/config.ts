/** Configuration of the installation, which the manager writes to <meta name="bai-config">. */
export interface Config {
  /** Path of the UI, without a slash at the end. */
  base: string;
  /** Path of the REST API. */
  api: string;
  /** Path of the Hub, with a slash at the end. */
  hub: string;
  language: string;
  /** The user who has opened the page. */
  username: string;
  /** Token that every write request sends as X-XSRFToken; valid for this user only. */
  xsrfToken: string;
  /** Name of the installation. */
  brand: string;
  /** Color of buttons and links, as #rrggbb. */
  brandColor: string;
  /** URL of the logo; empty: no logo. */
  logo: string;
  /** Whether users may see the agents of their resource groups. */
  showsAgents: boolean;
  /** Whether names and e-mail addresses of users are masked on the screen. */
  masksUsers: boolean;
  buildsRecipes: boolean;
}

function readConfig(): Config {
  const meta = document.querySelector<HTMLMetaElement>('meta[name="bai-config"]');
  if (!meta?.content) {
    throw new Error('the page has no bai-config: it must be served by the manager');
  }
  return JSON.parse(meta.content) as Config;
}

export const config = readConfig();
