import { createRootRoute } from '@tanstack/react-router';
import { MissingPage } from '../pages/missing/MissingPage';
import { Shell } from './Shell';

/** The parent route of all pages. */
export const root = createRootRoute({ component: Shell, notFoundComponent: MissingPage });
