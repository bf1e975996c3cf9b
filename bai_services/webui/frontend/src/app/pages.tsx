import { CloudOutlined, FolderOutlined, HomeOutlined } from '@ant-design/icons';
import type { ReactNode } from 'react';

export type Role = 'user' | 'admin' | 'superadmin' | 'monitor';

export type PagePath = '/start' | '/sessions' | '/data';

interface Page {
  path: PagePath;
  /** Key of its name. */
  title: string;
  icon: ReactNode;
  /** Roles that see it; everybody without. Such pages are in the group *Administration*. */
  roles?: readonly Role[];
}

/** The pages of the sidebar and of the command palette, in order. */
export const PAGES: readonly Page[] = [
  { path: '/start', title: 'pages.start', icon: <HomeOutlined /> },
  { path: '/sessions', title: 'pages.sessions', icon: <CloudOutlined /> },
  { path: '/data', title: 'pages.data', icon: <FolderOutlined /> }
];

/** The pages that a role may open; those for everybody while the role is unknown. */
export const pagesFor = (role: string | undefined) =>
  PAGES.filter(page => !page.roles || page.roles.some(allowed => allowed === role));
