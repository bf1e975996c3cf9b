import { CloudOutlined, FolderOutlined, HomeOutlined } from '@ant-design/icons';
import type { ReactNode } from 'react';

export type PagePath = '/start' | '/sessions' | '/data';

interface Page {
  path: PagePath;
  /** Key of its name. */
  title: string;
  icon: ReactNode;
}

/** The pages of the sidebar and of the command palette, in order. */
export const PAGES: readonly Page[] = [
  { path: '/start', title: 'pages.start', icon: <HomeOutlined /> },
  { path: '/sessions', title: 'pages.sessions', icon: <CloudOutlined /> },
  { path: '/data', title: 'pages.data', icon: <FolderOutlined /> }
];
