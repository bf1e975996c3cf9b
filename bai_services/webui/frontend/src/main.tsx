import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { keepFocus } from './app/focus';
import { router } from './app/router';
import { Themed } from './app/theme';
import { followChanges } from './data/events';
import { queries } from './data/queries';
import { startI18n } from './i18n';
import './style.css';

await startI18n();
followChanges();
keepFocus();
const root = document.getElementById('root');
if (!root) {
  throw new Error('index.html has no #root');
}
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <Themed>
        <RouterProvider router={router} />
      </Themed>
    </QueryClientProvider>
  </StrictMode>
);
