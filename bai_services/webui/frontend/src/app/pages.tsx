import {
  ApiOutlined,
  AppstoreOutlined,
  AuditOutlined,
  BarChartOutlined,
  BellOutlined,
  BlockOutlined,
  CalendarOutlined,
  CloudOutlined,
  ClusterOutlined,
  DashboardOutlined,
  DatabaseOutlined,
  DeploymentUnitOutlined,
  FieldTimeOutlined,
  FolderOutlined,
  HomeOutlined,
  InfoCircleOutlined,
  KeyOutlined,
  NotificationOutlined,
  PlusCircleOutlined,
  ProjectOutlined,
  SafetyOutlined,
  ScheduleOutlined,
  SettingOutlined,
  TeamOutlined,
  ToolOutlined
} from '@ant-design/icons';
import type { ReactNode } from 'react';
import { config } from '../config';
import { isReadOnly } from '../data/accounts/me';

export type Role = 'user' | 'admin' | 'superadmin' | 'monitor';

export type PagePath =
  | '/start'
  | '/dashboard'
  | '/sessions'
  | '/launch'
  | '/schedules'
  | '/data'
  | '/statistics'
  | '/reservations'
  | '/agent-summary'
  | '/users'
  | '/credentials'
  | '/projects'
  | '/policies'
  | '/presets'
  | '/images'
  | '/agents'
  | '/resource-groups'
  | '/scheduler'
  | '/storage'
  | '/announcements'
  | '/maintenance'
  | '/audit'
  | '/idle-checkers'
  | '/system'
  | '/webhooks'
  | '/notifications'
  | '/settings';

const ADMINS: readonly Role[] = ['admin', 'superadmin', 'monitor'];
const SUPERADMINS: readonly Role[] = ['superadmin', 'monitor'];

interface Page {
  path: PagePath;
  /** Translation key of the title. */
  title: string;
  icon: ReactNode;
  /**
   * Roles that may open the page; all roles if omitted. Pages with roles are in the section
   * *Administration*.
   */
  roles?: readonly Role[];
  /**
   * The page is shown only to the role *user*, and only if the installation lets users see agents.
   * Administrators have the page *Agents*.
   */
  isOfAgents?: boolean;
  /** Whether the page only creates objects, so that read-only roles have no use for it. */
  isForWriters?: boolean;
  /** Whether the page is in the account menu instead of the sidebar. */
  isInAccountMenu?: boolean;
}

/** The pages of the sidebar, the account menu and the command palette, in order. */
export const PAGES: readonly Page[] = [
  { path: '/start', title: 'pages.start', icon: <HomeOutlined /> },
  { path: '/dashboard', title: 'pages.dashboard', icon: <DashboardOutlined /> },
  { path: '/sessions', title: 'pages.sessions', icon: <CloudOutlined /> },
  { path: '/launch', title: 'pages.launch', icon: <PlusCircleOutlined />, isForWriters: true },
  { path: '/schedules', title: 'pages.schedules', icon: <CalendarOutlined /> },
  { path: '/data', title: 'pages.data', icon: <FolderOutlined /> },
  { path: '/statistics', title: 'pages.statistics', icon: <BarChartOutlined /> },
  { path: '/reservations', title: 'pages.reservations', icon: <CalendarOutlined /> },
  {
    path: '/agent-summary',
    title: 'pages.agent-summary',
    icon: <ClusterOutlined />,
    isOfAgents: true
  },
  { path: '/users', title: 'pages.users', icon: <TeamOutlined />, roles: ADMINS },
  { path: '/credentials', title: 'pages.credentials', icon: <KeyOutlined />, roles: ADMINS },
  { path: '/projects', title: 'pages.projects', icon: <ProjectOutlined />, roles: ADMINS },
  { path: '/policies', title: 'pages.policies', icon: <SafetyOutlined />, roles: ADMINS },
  {
    path: '/idle-checkers',
    title: 'pages.idle-checkers',
    icon: <FieldTimeOutlined />,
    roles: ADMINS
  },
  { path: '/presets', title: 'pages.presets', icon: <AppstoreOutlined />, roles: SUPERADMINS },
  { path: '/images', title: 'pages.images', icon: <BlockOutlined />, roles: SUPERADMINS },
  { path: '/agents', title: 'pages.agents', icon: <ClusterOutlined />, roles: ADMINS },
  {
    path: '/resource-groups',
    title: 'pages.resource-groups',
    icon: <DeploymentUnitOutlined />,
    roles: SUPERADMINS
  },
  { path: '/scheduler', title: 'pages.scheduler', icon: <ScheduleOutlined />, roles: ADMINS },
  { path: '/storage', title: 'pages.storage', icon: <DatabaseOutlined />, roles: ADMINS },
  {
    path: '/announcements',
    title: 'pages.announcements',
    icon: <NotificationOutlined />,
    roles: ADMINS
  },
  {
    path: '/maintenance',
    title: 'pages.maintenance',
    icon: <ToolOutlined />,
    roles: ADMINS
  },
  { path: '/audit', title: 'pages.audit', icon: <AuditOutlined />, roles: ADMINS },
  { path: '/webhooks', title: 'pages.webhooks', icon: <ApiOutlined />, roles: ADMINS },
  { path: '/system', title: 'pages.system', icon: <InfoCircleOutlined />, roles: SUPERADMINS },
  {
    path: '/notifications',
    title: 'pages.notifications',
    icon: <BellOutlined />,
    isInAccountMenu: true
  },
  { path: '/settings', title: 'pages.settings', icon: <SettingOutlined />, isInAccountMenu: true }
];

/** The pages that a role may open; if the role is unknown, the pages that every role may open. */
export const pagesFor = (role: string | undefined) =>
  PAGES.filter(
    page =>
      (!page.roles || page.roles.some(allowed => allowed === role)) &&
      !(page.isForWriters && isReadOnly(role)) &&
      (!page.isOfAgents || (config.showsAgents && role === 'user'))
  );
