import { CloudOutlined, DashboardOutlined, FolderOutlined, HomeOutlined } from '@ant-design/icons';
import type { ReactNode } from 'react';

export type Role = 'user' | 'admin' | 'superadmin' | 'monitor';

export type PagePath = '/start' | '/dashboard' | '/sessions' | '/data';

interface Page {
  path: PagePath;
  /** Translation key of the title. */
  title: string;
  icon: ReactNode;
  /** Roles that may open the page; all roles if omitted. Such pages are in *Administration*. */
  roles?: readonly Role[];
}

/** The pages of the sidebar and of the command palette, in order. */
export const PAGES: readonly Page[] = [
  { path: '/start', title: 'pages.start', icon: <HomeOutlined /> },
  { path: '/dashboard', title: 'pages.dashboard', icon: <DashboardOutlined /> },
  { path: '/sessions', title: 'pages.sessions', icon: <CloudOutlined /> },
  { path: '/data', title: 'pages.data', icon: <FolderOutlined /> }
];

/** The pages that a role may open; without a known role, those for all roles. */
export const pagesFor = (role: string | undefined) =>
  PAGES.filter(page => !page.roles || page.roles.some(allowed => allowed === role));
